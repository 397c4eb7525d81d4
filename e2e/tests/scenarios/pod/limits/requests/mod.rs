//! Memory and time that a client can take from the pod with requests: unfinished ones, and reviews.

mod floods;
mod reviews;
mod streams;

use super::*;
