//! The story of the product, told on a real cluster as a person would type it; the demo prints it, a scenario asserts it under fire.
//! How a line is shown is the `Narrator`'s; single rules and their bad inputs have scenarios of their own.

mod chapters;
mod teller;

pub use chapters::{CHAPTERS, Chapter, OUTSIDE, tell};
pub use teller::{Narrator, Silent, Teller};
