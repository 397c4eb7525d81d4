//! Files of a bundle, in memory.

use std::collections::BTreeMap;

/// Files of a bundle by relative path. Paths are separated by `/`, and contain neither `.` nor
/// `..`. An empty folder can have an entry whose path ends with `/`.
pub type Files = BTreeMap<String, Vec<u8>>;
