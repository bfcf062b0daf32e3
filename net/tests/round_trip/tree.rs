//! What `{:?}` prints, as a tree, so that two implementations of one schema can be compared by the
//! names and values of their fields.

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// `Name { field: value, .. }`
    Struct(String, Vec<(String, Self)>),
    /// `Name(value)`
    Tuple(String, Box<Self>),
    List(Vec<Self>),
    /// A number, a word, or text with its quotes.
    Leaf(String),
}

impl Tree {
    pub(crate) fn into_inner(self) -> Self {
        match self {
            Self::Tuple(_, inner) => *inner,
            other => other,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::List(items) => items.is_empty(),
            Self::Leaf(text) => matches!(text.as_str(), "\"\"" | "b\"\""),
            _ => false,
        }
    }
}

/// Fields that are not compared here: records, which are compared as bytes; the oracle's list of
/// unknown tags; fields of versions that we do not speak; and those that only we have.
const DROPPED: [&str; 11] = [
    "records",
    "unknown_tagged_fields",
    "unread_from",
    "unread",
    "with_times",
    "committed_at",
    "enable_2_pc",
    "keep_prepared_txn",
    "ongoing_txn_producer_id",
    "ongoing_txn_producer_epoch",
    "transaction_version",
];

/// Parses, and levels what the two print differently: a nullable field that the version lacks is
/// null here and empty there. Where the version has it, the bytes tell the two apart.
pub(crate) fn parse(text: &str) -> Tree {
    let mut parser = Parser { rest: text };
    let tree = parser.tree();
    assert_eq!(parser.rest, "", "all of the text is a tree");
    tree
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn tree(&mut self) -> Tree {
        if self.take("[") {
            return self.list("]");
        }
        if self.take("{") {
            return self.list("}");
        }
        if self.rest.starts_with('"') || self.rest.starts_with("b\"") {
            return self.quoted();
        }
        let end = self.rest.find([',', ' ', '(', ')', '{', '}', '[', ']', ':']);
        let word = self.rest[..end.unwrap_or(self.rest.len())].to_owned();
        self.rest = &self.rest[word.len()..];
        if self.take("(") {
            let inner = self.tree();
            assert!(self.take(")"), "a tuple has one value");
            // A uuid: we print sixteen numbers, the oracle hexadecimal digits.
            return match uuid(&inner) {
                Some(digits) if word == "TopicId" => Tree::Leaf(digits),
                _ if word == "Some" && inner.is_empty() => Tree::Leaf("None".to_owned()),
                _ => Tree::Tuple(word, Box::new(inner)),
            };
        }
        if self.take(" { ") {
            let mut fields = self.fields();
            if word == "DeletableGroupResult" {
                // Of version 3, which the oracle does not know.
                fields.retain(|(name, _)| name != "error_message");
            }
            return Tree::Struct(word, fields);
        }
        Tree::Leaf(word)
    }

    fn list(&mut self, end: &str) -> Tree {
        let mut items = Vec::new();
        while !self.take(end) {
            let left = self.rest.len();
            items.push(self.tree());
            // In a map, the key and then what it stands for.
            if self.take(": ") {
                items.push(self.tree());
            }
            self.take(", ");
            assert!(self.rest.len() < left, "there is something between the brackets");
        }
        Tree::List(items)
    }

    fn fields(&mut self) -> Vec<(String, Tree)> {
        let mut fields = Vec::new();
        loop {
            let (name, rest) = self.rest.split_once(": ").expect("a field has a value");
            let name = name.to_owned();
            self.rest = rest;
            let mut value = self.tree();
            if matches!(name.as_str(), "replica_directory_id" | "voter_directory_id") {
                value = uuid(&value).map_or(value, Tree::Leaf);
            }
            if !DROPPED.contains(&name.as_str()) {
                fields.push((name, value));
            }
            if !self.take(", ") {
                assert!(self.take(" }"), "a struct ends");
                return fields;
            }
        }
    }

    fn quoted(&mut self) -> Tree {
        let start = self.rest.find('"').expect("checked by the caller") + 1;
        let mut escaped = false;
        let end = self.rest[start..].find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let (text, rest) = self.rest.split_at(start + end.expect("text ends") + 1);
        self.rest = rest;
        Tree::Leaf(text.to_owned())
    }
}

fn uuid(tree: &Tree) -> Option<String> {
    let Tree::List(items) = tree else { return None };
    let bytes: Option<Vec<u8>> = items
        .iter()
        .map(|item| match item {
            Tree::Leaf(number) => number.parse().ok(),
            _ => None,
        })
        .collect();
    let digits: String = bytes?.iter().map(|byte| format!("{byte:02x}")).collect();
    (digits.len() == 32).then(|| {
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    })
}
