"""Answers to requests of clients, by what they are about; `routing` says who may ask and who answers."""
