//! Words and forms that the language rules ban.

/// Banned phrases: sequences of lower-case words.
const PHRASES: &[&str] = &[
    "anew",
    "are asked",
    "are taken",
    "are told",
    "asked for",
    "be asked",
    "be taken",
    "be told",
    "been asked",
    "bears",
    "brings",
    "by itself",
    "by themselves",
    "from others",
    "in a moment",
    "is about",
    "is asked",
    "is taken",
    "is told",
    "land",
    "landed",
    "lands",
    "may not",
    "nobody",
    "not asked",
    "of others",
    "our",
    "ours",
    "refusal",
    "refusals",
    "refuse",
    "refused",
    "refuses",
    "rights",
    "somebody",
    "stands",
    "taken for",
    "tells",
    "those who",
    "told",
    "was asked",
    "was told",
    "were asked",
    "were told",
    "whoever",
];

/// Texts of other projects and of the operating system that contain a banned phrase.
const QUOTED: &[&str] = &[
    "connection refused",
    "field may not be empty",
    "may not be longer than",
    "may not be more than",
    "may not change once set",
    "may not be removed",
    "may not exist",
    "not our ref",
];

/// Words with which a doc comment must not begin.
const QUESTIONS: &[&str] = &[
    "how", "what", "when", "where", "whether", "which", "who", "why",
];

/// Returns the banned phrases in a text, except in code between backticks.
pub(super) fn banned(text: &str) -> Vec<&'static str> {
    let plain: Vec<&str> = text.split('`').step_by(2).collect();
    let words: Vec<String> = words(&plain.join(" . "));
    let line = format!(" {} ", words.join(" "));
    let line = QUOTED.iter().fold(line, |line, quoted| {
        line.replace(&format!(" {quoted} "), " . ")
    });
    PHRASES
        .iter()
        .copied()
        .filter(|phrase| line.contains(&format!(" {phrase} ")))
        .collect()
}

/// Returns the question word with which a doc comment begins.
pub(super) fn question(text: &str) -> Option<&'static str> {
    let first = words(text).into_iter().next()?;
    QUESTIONS.iter().copied().find(|word| *word == first)
}

/// Returns the words in lower case. Punctuation between words becomes `.`, so that a phrase never
/// matches across a sentence.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let inner = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '\'');
        let word = part.trim_start_matches(|letter| !inner(letter));
        let end = word.find(|letter| !inner(letter)).unwrap_or(word.len());
        if end > 0 {
            words.push(word[..end].to_lowercase());
        }
        if end < word.len() || word.is_empty() {
            words.push(".".to_owned());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_banned_phrases_in_any_case_and_across_spaces() {
        assert_eq!(banned("Nobody  may\nnot read it."), ["may not", "nobody"]);
        assert_eq!(
            banned("\"refused\": the user's rights"),
            ["refused", "rights"]
        );
    }

    #[test]
    fn ignores_code_quoted_texts_and_phrases_across_sentences() {
        for text in [
            "`Refused` and `may not`",
            "Too long: may not be longer than 52",
            "tcp: connection refused",
            "It may. Not now.",
            "islands, hours and refusing",
        ] {
            assert!(banned(text).is_empty(), "{text}: {:?}", banned(text));
        }
    }

    #[test]
    fn reports_question_words_at_the_beginning() {
        assert_eq!(question("Whether it is set."), Some("whether"));
        assert_eq!(question("Returns what is set."), None);
        assert_eq!(question(""), None);
    }
}
