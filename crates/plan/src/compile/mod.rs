//! Requests to plan sets: pure functions, one file per kind of request.
