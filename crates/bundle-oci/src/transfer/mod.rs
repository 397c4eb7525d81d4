//! Transfers of content: their minimum rate, and streams that are written to disk or inflated while
//! they arrive.

pub mod archive_file;
pub mod blocking;
pub mod rate;
