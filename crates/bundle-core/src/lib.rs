//! Rules of kubectl-bundle as pure functions over plain data: parsing, policies, admission, install
//! steps. The crate does no I/O and reads no clock. Callers pass the time and random values.

pub mod base64_go;
pub mod cancellation;
pub mod check;
pub mod configuration;
pub mod content;
pub mod diagnostic;
pub mod doctor;
mod field_path;
pub mod files;
pub mod footprint;
pub mod format;
pub mod images;
pub mod json;
pub mod names;
pub mod object;
pub mod package;
pub mod plan;
pub mod policy;
pub mod reference;
mod regex_limits;
pub mod registration;
pub mod review;
pub mod rights;
pub mod service_account;
pub mod serving_certificate;
mod structural;
pub mod text;
pub mod version;
pub mod yaml;
