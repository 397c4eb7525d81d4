//! Flag for the container images in a folder.

use bundle_core::images::MutableTagAllowlist;
use clap::Args;

use super::invalid_flag;
use crate::failure::Outcome;

/// Flag for container images.
#[derive(Debug, Args)]
pub(crate) struct ImageFlags {
    /// Allow images with a moving tag or without a tag, in all repositories or in the repositories
    /// that match (`registry/path/**`)
    #[arg(
        long,
        value_name = "PATTERN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "**"
    )]
    pub(crate) allow_mutable_tags: Vec<String>,
}

impl ImageFlags {
    /// Returns the images that may have a moving tag or no tag.
    pub(crate) fn settings(self) -> Outcome<MutableTagAllowlist> {
        for pattern in &self.allow_mutable_tags {
            if let Some(why) = bundle_core::policy::glob::problem(pattern) {
                return Err(invalid_flag("--allow-mutable-tags", &why)
                    .hint("a pattern is REGISTRY/REPOSITORY with `*` and `**`: docker.io/library/*, registry.example.com/team/**")
                    .into());
            }
        }
        Ok(MutableTagAllowlist {
            patterns: self.allow_mutable_tags,
        })
    }
}
