//! All tests of a router that need its crate alone.
