//! Fenced blocks of code in Markdown.

use anyhow::{Result, bail};

#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its fence, from 1.
    pub line: usize,
    /// The first word behind its fence; empty if there is none.
    pub language: String,
    /// Its lines, without the indentation of the fence.
    pub text: String,
}

impl Block {
    pub fn is_yaml(&self) -> bool {
        ["yaml", "yml"].iter().any(|name| self.language.eq_ignore_ascii_case(name))
    }
}

/// The fenced blocks of a document, in their order.
pub fn blocks(document: &str) -> Result<Vec<Block>> {
    let mut found = Vec::new();
    // The fence that ends the block, its indentation, and the block.
    let mut open: Option<(String, usize, Block)> = None;
    for (number, line) in (1..).zip(document.lines()) {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let Some((fence, outer, block)) = &mut open else {
            let ticks = text.len() - text.trim_start_matches('`').len();
            if ticks >= 3 && !text[ticks..].contains('`') {
                let language = text[ticks..].split_whitespace().next().unwrap_or_default().to_owned();
                let block = Block { line: number, language, text: String::new() };
                open = Some((text[..ticks].to_owned(), indent, block));
            }
            continue;
        };
        if text.trim_end() == fence {
            found.extend(open.take().map(|(.., block)| block));
        } else {
            block.text.push_str(&line[indent.min(*outer)..]);
            block.text.push('\n');
        }
    }
    match open {
        Some((.., block)) => bail!("the block that begins in line {} does not end", block.line),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_known_by_their_fence() -> Result<()> {
        let document = "a\n```yaml\nb: 1\n  c: 2\n```\n```text\nd: 3\n```\n1. x\n   ```yaml title\n   e:\n     f: 4\n   ```\n    ````\n````\n";
        let block =
            |line, language: &str, text: &str| Block { line, language: language.to_owned(), text: text.to_owned() };
        assert_eq!(
            blocks(document)?,
            [
                block(2, "yaml", "b: 1\n  c: 2\n"),
                block(6, "text", "d: 3\n"),
                block(10, "yaml", "e:\n  f: 4\n"),
                block(14, "", "")
            ]
        );
        assert_eq!(blocks("````text\n```yaml\n````\n")?, [block(1, "text", "```yaml\n")]);
        let open = blocks("a\n```yaml\nb: 1\n").unwrap_err().to_string();
        assert_eq!(open, "the block that begins in line 2 does not end");
        Ok(())
    }
}
