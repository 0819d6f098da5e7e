//! Where the table goes: to a terminal, where it stays in place, or to anything else, line by line.

use std::io;

use console::Term;

pub struct Screen {
    term: Term,
    /// Lines of the table that is shown.
    shown: usize,
}

impl Screen {
    pub fn new() -> Self {
        Self {
            term: Term::buffered_stdout(),
            shown: 0,
        }
    }

    pub fn show(&mut self, lines: &[String]) -> io::Result<()> {
        if self.term.is_term() {
            self.term.clear_last_lines(self.shown)?;
            self.shown = lines.len();
        }
        let width = usize::from(self.term.size().1);
        for line in lines {
            if self.term.is_term() {
                // One that is broken would not be cleared whole.
                let line = console::truncate_str(line, width, "…");
                self.term.write_line(&line)?;
            } else {
                self.term.write_line(line)?;
            }
        }
        if !self.term.is_term() {
            self.term.write_line("")?;
        }
        self.term.flush()
    }
}
