//! Real registries: access, transfers, copies, and offline transfer.

mod access;
mod airgap;
mod copies;
mod images;
mod transfer;
