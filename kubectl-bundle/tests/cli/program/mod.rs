//! Verbs for this program.

mod completion;
