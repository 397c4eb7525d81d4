//! Authentication: credentials, challenges, tokens, and the endpoint of each registry.

pub(in crate::registry) mod challenge;
pub(in crate::registry) mod credential_file;
pub(in crate::registry) mod credentials;
pub(in crate::registry) mod endpoint;
pub(in crate::registry) mod login;
pub(in crate::registry) mod token;
