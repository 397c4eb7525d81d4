//! Review of objects in files.

mod check;
