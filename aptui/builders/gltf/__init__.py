"""The parts of the glTF builder."""
