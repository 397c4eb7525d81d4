//! Sources of an identity token: a flag, a file, standard input, the CI system, or a login.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;
use url::Url;

use super::http::{Credentials, HttpClients, ServiceRequest, SigningService};
use super::login::{Login, LoginKind};
use super::secret::Secret;
use crate::failure::{Failure, Outcome};
use crate::system::files;
use crate::ui::Ui;

/// Requirements for a token.
pub(super) struct TokenRequirements<'a> {
    /// Audience.
    pub(super) audience: &'a str,
    /// Issuer for logins.
    pub(super) issuer: Option<&'a str>,
}

/// Source of a token.
#[derive(Debug, Clone)]
pub(crate) enum TokenSource {
    /// Text of the flag: a token, a file with a token, or `-` for standard input.
    Flag(Secret),
    /// Token in an environment variable, as GitLab sets it.
    Environment(Secret),
    /// File with a token that the cluster refreshes.
    File(PathBuf),
    /// GitHub Actions, which issues a token on request.
    GitHub {
        /// URL at which the job requests an identity token.
        url: String,
        /// Bearer token that authenticates the request.
        token: Secret,
    },
    /// Buildkite, whose agents issue a token on request.
    Buildkite {
        /// URL of the agent API.
        endpoint: String,
        /// ID of the job.
        job: String,
        /// Bearer token that authenticates the request.
        token: Secret,
    },
    /// A login by a user.
    Login(LoginKind),
    /// No source of a token is available.
    Missing,
}

/// Response of GitHub.
#[derive(Deserialize)]
struct GitHubResponse {
    value: Secret,
}

/// Response of Buildkite.
#[derive(Deserialize)]
struct BuildkiteResponse {
    token: Secret,
}

impl TokenSource {
    /// Returns the text of the token.
    pub(super) async fn get(
        self,
        http: &HttpClients,
        ui: &mut Ui,
        wanted: &TokenRequirements<'_>,
    ) -> Outcome<Secret> {
        match self {
            Self::Environment(token) => Ok(token),
            Self::File(path) => files::read_text(&path).map(Secret::from),
            Self::Flag(given) => {
                let text = given.expose();
                let path = Path::new(text);
                if text == "-" || path.is_file() || !text.contains('.') {
                    files::read_text(path).map(Secret::from)
                } else {
                    Ok(given)
                }
            }
            Self::GitHub { url, token } => {
                let service = SigningService::GitHubIssuer;
                let _progress = ui.progress("getting an identity token");
                let url = Url::parse(&url).map(|mut url| {
                    url.query_pairs_mut().append_pair("audience", wanted.audience);
                    url
                });
                let answer = http
                    .send(ServiceRequest {
                        service,
                        url,
                        media_type: "",
                        content: Vec::new(),
                        bearer: Some(Credentials::Bearer(token)),
                    })
                    .await?;
                let answer: GitHubResponse = serde_json::from_slice(&answer).map_err(|_| empty(service))?;
                Ok(answer.value)
            }
            Self::Buildkite {
                endpoint,
                job,
                token,
            } => {
                let service = SigningService::BuildkiteIssuer;
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
                    .send(ServiceRequest {
                        service,
                        url,
                        media_type: "application/json",
                        content: question.to_string().into_bytes(),
                        bearer: Some(Credentials::Agent(token)),
                    })
                    .await?;
                let answer: BuildkiteResponse = serde_json::from_slice(&answer).map_err(|_| empty(service))?;
                Ok(answer.token)
            }
            Self::Login(flow) => {
                let issuer = wanted.issuer.ok_or_else(|| {
                    Finding::error(
                        codes::usage::BAD_ARGUMENT,
                        "the issuer for this certificate authority is unknown",
                    )
                    .hint("set --oidc-issuer, or add it to a --signing-config")
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
                "neither a key nor an identity token is available for signing",
            )
            .hint("set --key or --identity-token, or log in with --fulcio-auth-flow normal or device; in CI, set SIGSTORE_ID_TOKEN or allow the job to request a token (GitHub Actions: permissions: id-token: write)")
            .into()),
        }
    }
}

fn empty(service: SigningService) -> Failure {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("the response of {service} has no token"),
    )
    .into()
}
