//! Checks of the claims of a token that an issuer returned (OpenID Connect Core, 3.1.3.7): issuer,
//! audience, nonce.

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keyless::Token;
use jiff::Timestamp;

use super::Login;
use crate::sigstore::secret::Secret;

/// Checks that `token` has the requested claims.
pub(super) fn check(login: &Login, token: &Secret, nonce: Option<&str>) -> Result<(), Finding> {
    let wrong = |why: String| {
        Finding::error(
            codes::trust::TOKEN_REFUSED,
            format!("the identity token is invalid: {why}"),
        )
        .hint("nothing was signed; the token of the issuer does not belong to this login")
    };
    let now = Timestamp::now().as_second();
    let token = Token::parse(token.expose(), &login.client, now)?;
    let (_, by) = token.names();
    if by != login.issuer {
        return Err(wrong(format!(
            "its issuer is `{}`, expected `{}`",
            crate::ui::safe(by),
            login.issuer
        )));
    }
    if nonce.is_some() && token.nonce() != nonce {
        return Err(wrong("it belongs to another login (nonce)".to_owned()));
    }
    Ok(())
}
