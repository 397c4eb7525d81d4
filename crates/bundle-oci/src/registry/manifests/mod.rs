//! Manifests, indexes, referrers and signatures.

pub(in crate::registry) mod cosign_tags;
pub(in crate::registry) mod image_metadata;
pub(in crate::registry) mod raw;
pub(in crate::registry) mod read;
pub(in crate::registry) mod referrer_list;
pub(in crate::registry) mod referrers;
pub(in crate::registry) mod signature_budget;
pub(in crate::registry) mod tag_conflict;
