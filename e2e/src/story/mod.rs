//! Demo of the product on a real cluster, as a sequence of command lines. `cargo xtask demo` prints
//! it, and a scenario runs it with a webhook that is killed repeatedly.

mod chapters;
mod teller;

pub use chapters::{CHAPTERS, Chapter, OUTSIDE, tell};
pub use teller::{Narrator, Silent, Teller};
