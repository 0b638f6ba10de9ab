"""A small project written on the spot, with assets worth looking at. Nothing else imports it but the verb."""
