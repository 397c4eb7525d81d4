//! Where an identity token comes from: a flag, a file, standard input, or the CI system that runs this.
//! Not here: what it says (bundle-trust).

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;
use url::Url;

use super::http::{Ask, Http};
use crate::failure::Outcome;
use crate::files;

/// Where it comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// This text: a token, a file that holds one, or `-` for standard input.
    Given(String),
    /// The environment: GitLab and others put it there.
    Environment(String),
    /// GitHub Actions, which gives one for a request.
    GitHub {
        /// Where to ask.
        url: String,
        /// What to show.
        token: String,
    },
    /// Nowhere.
    Missing,
}

#[derive(Deserialize)]
struct Answer {
    value: String,
}

impl Source {
    /// The text of the token.
    pub(super) async fn get(self, http: &Http, audience: &str) -> Outcome<String> {
        match self {
            Self::Environment(token) => Ok(token),
            Self::Given(text) => {
                let path = PathBuf::from(&text);
                if text == "-" || path.is_file() || !text.contains('.') {
                    files::read_text(Path::new(&text))
                } else {
                    Ok(text)
                }
            }
            Self::GitHub { url, token } => {
                let url = Url::parse(&url).map(|mut url| {
                    url.query_pairs_mut().append_pair("audience", audience);
                    url
                });
                let answer = http
                    .send(Ask {
                        who: "the issuer of GitHub Actions",
                        url,
                        media_type: "",
                        content: Vec::new(),
                        bearer: Some(token),
                    })
                    .await?;
                let answer: Answer = serde_json::from_slice(&answer).map_err(|_| {
                    Finding::error(
                        codes::trust::SERVICE_REFUSED,
                        "the issuer of GitHub Actions answers without a token",
                    )
                })?;
                Ok(answer.value)
            }
            Self::Missing => Err(Finding::error(
                codes::trust::TOKEN_REFUSED,
                "there is neither a key nor an identity token to sign with",
            )
            .hint("give --key FILE or --identity-token TOKEN; CI systems put a token into SIGSTORE_ID_TOKEN, or give one where the job may ask (GitHub Actions: permissions: id-token: write)")
            .into()),
        }
    }
}
