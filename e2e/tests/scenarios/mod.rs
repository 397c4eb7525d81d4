//! The subjects. A scenario fails by panicking, so that its cluster's logs are kept.

mod admission;
mod checks;
mod cosign;
mod guest;
mod harness;
mod images;
mod page;
mod pod;
mod readme;
mod reconcile;
<<<<<<< Updated upstream
mod registries;
=======
mod shipping;
>>>>>>> Stashed changes
mod sigstore;
mod story;
mod tenant;
mod transfer;
