//! Flags for platforms and referrers, which `copy`, `pull` and `save` share.

use bundle_oci::store::CopyOptions;
use clap::Args;

use crate::failure::Outcome;
use crate::flags::invalid_flag;

/// Flags for platforms and referrers.
#[derive(Debug, Default, Args)]
pub(crate) struct CopyFlags {
    /// Do not copy referrers: signatures, attestations, SBOMs
    #[arg(long)]
    pub(crate) no_referrers: bool,
    /// Copy only images for this platform of an index, such as linux/amd64; may be repeated
    /// [default: all]
    #[arg(long, value_name = "OS/ARCH", value_delimiter = ',')]
    pub(crate) platform: Vec<String>,
}

impl CopyFlags {
    /// Returns the options of a copy.
    pub(crate) fn options(&self) -> Outcome<CopyOptions> {
        let platforms = self
            .platform
            .iter()
            .map(|text| {
                text.parse()
                    .map_err(|why: String| invalid_flag("--platform", &why))
            })
            .collect::<Result<_, _>>()?;
        Ok(CopyOptions {
            without_referrers: self.no_referrers,
            platforms,
            ..CopyOptions::default()
        })
    }
}
