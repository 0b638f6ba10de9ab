"""What can be done from the Jobs screen: with rows, with the engine, with other programs; what can be copied there."""
