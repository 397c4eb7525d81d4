//! Content of a Bundle: its copies in the cache, and its objects, prepared for applying.

pub(super) mod archive;
pub(super) mod objects;
pub(super) mod rendered;
pub(super) mod sealed_file;
pub(super) mod store;
pub(super) mod stored;
pub(super) mod unpacked;
