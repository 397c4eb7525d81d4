//! Where an identity token comes from: a flag, a file, standard input, the CI system that runs this, or somebody who logs in.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;
use url::Url;

use super::http::{Ask, Http, Shown};
use super::login::{Flow, Login};
use super::secret::Secret;
use crate::failure::{Failure, Outcome};
use crate::files;
use crate::ui::Ui;

/// What is wanted of a token.
pub(super) struct Wanted<'a> {
    /// Who it has to be for.
    pub(super) audience: &'a str,
    /// Who issues them to people who log in.
    pub(super) issuer: Option<&'a str>,
}

/// Where it comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// This text: a token, a file that holds one, or `-` for standard input.
    Given(Secret),
    /// The environment: GitLab and others put it there.
    Environment(Secret),
    /// A file that a cluster keeps fresh.
    File(PathBuf),
    /// GitHub Actions, which gives one for a request.
    GitHub {
        /// Where to ask.
        url: String,
        /// What to show.
        token: Secret,
    },
    /// Buildkite, whose agents are given one for a request.
    Buildkite {
        /// Where agents ask.
        endpoint: String,
        /// Which job this is.
        job: String,
        /// What to show.
        token: Secret,
    },
    /// Somebody who is there.
    Login(Flow),
    /// Nowhere.
    Missing,
}

/// GitHub's answer.
#[derive(Deserialize)]
struct Value {
    value: Secret,
}

/// Buildkite's.
#[derive(Deserialize)]
struct Token {
    token: Secret,
}

impl Source {
    /// The text of the token.
    pub(super) async fn get(
        self,
        http: &Http,
        ui: &mut Ui,
        wanted: &Wanted<'_>,
    ) -> Outcome<Secret> {
        match self {
            Self::Environment(token) => Ok(token),
            Self::File(path) => files::read_text(&path).map(Secret::from),
            Self::Given(given) => {
                let text = given.expose();
                let path = Path::new(text);
                if text == "-" || path.is_file() || !text.contains('.') {
                    files::read_text(path).map(Secret::from)
                } else {
                    Ok(given)
                }
            }
            Self::GitHub { url, token } => {
                let who = "the issuer of GitHub Actions";
                let _progress = ui.progress("getting an identity token");
                let url = Url::parse(&url).map(|mut url| {
                    url.query_pairs_mut().append_pair("audience", wanted.audience);
                    url
                });
                let answer = http
                    .send(Ask {
                        who,
                        url,
                        media_type: "",
                        content: Vec::new(),
                        bearer: Some(Shown::Bearer(token)),
                    })
                    .await?;
                let answer: Value = serde_json::from_slice(&answer).map_err(|_| empty(who))?;
                Ok(answer.value)
            }
            Self::Buildkite {
                endpoint,
                job,
                token,
            } => {
                let who = "the issuer of Buildkite";
                let _progress = ui.progress("getting an identity token");
                let url = Url::parse(&endpoint).map(|mut url| {
                    if let Ok(mut path) = url.path_segments_mut() {
                        path.pop_if_empty()
                            .extend(["jobs", &job, "oidc", "tokens"]);
                    }
                    url
                });
                let question = serde_json::json!({ "audience": wanted.audience });
                let answer = http
                    .send(Ask {
                        who,
                        url,
                        media_type: "application/json",
                        content: question.to_string().into_bytes(),
                        bearer: Some(Shown::Agent(token)),
                    })
                    .await?;
                let answer: Token = serde_json::from_slice(&answer).map_err(|_| empty(who))?;
                Ok(answer.token)
            }
            Self::Login(flow) => {
                let issuer = wanted.issuer.ok_or_else(|| {
                    Finding::error(
                        codes::usage::BAD_ARGUMENT,
                        "where to log in for this certificate authority is not known",
                    )
                    .hint("name its issuer with --oidc-issuer, or in a --signing-config")
                })?;
                let login = Login {
                    issuer: issuer.to_owned(),
                    client: wanted.audience.to_owned(),
                    flow,
                };
                Box::pin(login.token(http, ui)).await
            }
            Self::Missing => Err(Finding::error(
                codes::trust::TOKEN_REFUSED,
                "there is neither a key nor an identity token to sign with",
            )
            .hint("give --key, --identity-token, or --fulcio-auth-flow normal or device to log in; CI systems put a token into SIGSTORE_ID_TOKEN, or give one where the job may ask (GitHub Actions: permissions: id-token: write)")
            .into()),
        }
    }
}

fn empty(who: &str) -> Failure {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("{who} answers without a token"),
    )
    .into()
}
