//! Suggestions for misspelled words.

/// Returns the most similar known word, if it is similar enough to be a suggestion.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = written.to_lowercase();
    known
        .iter()
        .map(|word| (distance(&lower, &word.to_lowercase()), *word))
        .min()
        .filter(|(distance, word)| *distance <= word.len().max(3) / 3)
        .map(|(_, word)| word)
}

/// Returns the Levenshtein distance: the number of letters to insert, remove or change.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    // Words come from files and can have any length. Long words are never similar, so the
    // comparison stops after 64 letters.
    for (index, letter) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_words() {
        let known = ["name", "version", "kubernetes", "description"];
        assert_eq!(nearest("verison", &known), Some("version"));
        assert_eq!(nearest("Name", &known), Some("name"));
        assert_eq!(nearest("kubernets", &known), Some("kubernetes"));
        assert_eq!(nearest("owner", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(
            (
                distance("abc", "abc"),
                distance("", "ab"),
                distance("kitten", "sitting")
            ),
            (0, 2, 3)
        );
    }
}
