"""What the screens show: news joined with the database, in order, filtered, made in threads. No widget."""
