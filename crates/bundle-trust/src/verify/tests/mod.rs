//! Tests of the verification, by subject.

mod ambiguous;
mod floods;
mod forge;
mod forged;
mod keyless;
mod keys;
mod logs;
mod tiled;
mod versions;

use bundle_core::policy::{KeyId, Meaning, Signer};

use super::*;
use crate::{dsse, legacy, statement};
