"""Places for shared results: folders, HTTP servers, object stores and this machine; what keeps them small."""
