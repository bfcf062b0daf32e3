//! A Rust file as the rules see it: its text, and the same text with comments and literals blanked
//! out, so that a rule about code is not fooled by prose. Not a parser: it knows tokens only.

use std::fs;
use std::path::Path;

pub(crate) struct Source {
    /// From the root of the repository, with forward slashes.
    pub path: String,
    pub text: String,
    /// As `text`, line for line and character for character, without comments and literals.
    pub code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// Whether the file is the listed file, or lies in the listed folder (`name/`).
    pub(crate) fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| match place.strip_suffix('/') {
            Some(folder) => self.path.starts_with(&format!("{folder}/")),
            None => self.path == *place,
        })
    }

    /// Tests of a crate, which run on the machine that builds it.
    pub(crate) fn is_test(&self) -> bool {
        let mut folders = self.path.split('/').skip(1);
        folders.any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
    }

    pub(crate) fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }

    /// Lines, counted from 0, on which `word` stands as a whole word or path in code.
    pub(crate) fn lines_with(&self, word: &str) -> Vec<usize> {
        let lines = self.code.lines().enumerate();
        lines.filter(|(_, line)| has_word(line, word)).map(|(number, _)| number).collect()
    }
}

/// `word` with no letter, digit or underscore beside it.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let opens = word.starts_with(inside);
    let closes = word.ends_with(inside);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(inside);
        let after = line[at + word.len()..].chars().next().is_some_and(inside);
        let continues = (opens && before) || (closes && after);
        !continues
    })
}

/// Every Rust file of the repository, sorted by path.
pub(crate) fn all(root: &Path) -> Vec<Source> {
    let mut sources: Vec<Source> = files(root, root)
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| {
            let text = fs::read_to_string(root.join(&path)).expect("a source is readable");
            Source::new(&path, &text)
        })
        .collect();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// Every file below `folder`, build output and hidden folders left out, as paths from `root`.
pub(crate) fn files(root: &Path, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.map(|entry| entry.expect("a folder is readable")) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() {
            let foreign = ["target", "node_modules", "quorate-data", "corpus", "artifacts"];
            if !name.starts_with('.') && !foreign.contains(&name.as_str()) {
                found.extend(files(root, &path));
            }
        } else if kind.is_file() {
            let relative = path.strip_prefix(root).expect("below the root");
            found.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    found
}

/// Replaces comments, strings and character literals by spaces; keeps line breaks and length.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let within_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => at + rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => at + comment_length(rest),
        ['"', ..] => at + string_length(rest),
        ['r', '"' | '#', ..] if !within_word => at + raw_string_length(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !within_word => at + raw_string_length(rest, 2),
        ['\'', '\\', ..] => {
            let close = rest.iter().skip(3).position(|&c| c == '\'');
            at + close.map_or(rest.len(), |place| place + 4)
        }
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

fn comment_length(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `prefix` letters, then hashes and a quote; a raw identifier (`r#type`) has no length.
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    let body = &rest[open + 1..];
    body.windows(close.len())
        .position(|window| window == close)
        .map_or(rest.len(), |place| open + 1 + place + close.len())
}

#[test]
fn comments_and_literals_are_blank() {
    let text = "let a = \"todo!()\"; // unsafe\nlet b = '\\''; let c: &'static str = r#\"x\"y\"#;";
    let code = blank(text);
    assert_eq!(code.chars().count(), text.chars().count());
    assert!(!code.contains("todo") && !code.contains("unsafe") && !code.contains('y'));
    assert!(code.contains("&'static str") && code.ends_with(';'));
    assert_eq!(blank("/* a /* b */ c */ d").trim(), "d");
    assert_eq!(blank("let r#type = b'\"'; e"), "let r#type = b   ; e");
}

#[test]
fn words_are_whole() {
    assert!(has_word("use std::sync::Arc;", "Arc"));
    assert!(!has_word("struct Archive;", "Arc"));
    assert!(has_word("tokio::time::sleep(x)", "tokio::time"));
    assert!(!has_word("tokio::timeline", "tokio::time"));
}
