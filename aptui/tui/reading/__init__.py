"""What the app reads and hears once it is shown: jobs and news, names of builders, rejected peers. What they hold is in `data`."""
