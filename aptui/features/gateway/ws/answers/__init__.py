"""Answers to requests of clients, by what they are about; `routing` has the permissions and the answering function of each."""
