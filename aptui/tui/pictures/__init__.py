"""Pictures on the screen: headers, decoding in a separate process, drawing with cells."""
