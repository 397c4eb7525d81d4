//! Files of a bundle, in memory.

use std::collections::BTreeMap;

/// Files of a bundle by relative path, with `/` and without `.` and `..`. An empty folder may be
/// listed with a final `/`.
pub type Files = BTreeMap<String, Vec<u8>>;
