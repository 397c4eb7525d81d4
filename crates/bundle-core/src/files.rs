//! The files of a bundle, in memory.
//! Not here: reading them from layers or disks (bundle-oci, the shells).

use std::collections::BTreeMap;

/// The files of a bundle by path: relative, with `/`, without `.` and `..`. A folder with nothing in it may stand here with a `/` at its end.
pub type Files = BTreeMap<String, Vec<u8>>;
