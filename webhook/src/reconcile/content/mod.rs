//! Content of a Bundle: reading it from its source or the cache, and preparing its objects.

pub(super) mod created_namespace;
pub(super) mod items;
pub(super) mod reader;
pub(super) mod rendered;
pub(super) mod scalers;
pub(super) mod sealed_file;
pub(super) mod selected;
pub(super) mod store;
pub(super) mod stored;
