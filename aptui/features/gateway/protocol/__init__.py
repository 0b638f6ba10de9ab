"""Messages of the outer wire: requests, notices, models, codec and the generated documents. No socket."""
