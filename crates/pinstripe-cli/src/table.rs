//! Tables with aligned columns: numbers to the right, words to the left, the last column without
//! padding.

/// The side on which a column is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The lines of a table with a head, with two spaces between columns and none after the last.
pub fn lines(head: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
    let names = head.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    let is_headless = names.iter().all(String::is_empty);
    let all: Vec<_> = std::iter::once(&names).filter(|_| !is_headless).chain(rows).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(head).zip(&widths);
        let cells = cells.map(|((cell, (_, side)), &width)| {
            // Not by a width of `format!`, which may be 65,535 at most.
            let blanks = " ".repeat(width - cell.chars().count());
            match side {
                Side::Left => format!("{cell}{blanks}"),
                Side::Right => format!("{blanks}{cell}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let head = [("n", Side::Right), ("what", Side::Left), ("where", Side::Left)];
        let rows = [["1", "größe", "/a"], ["100", "b", ""]];
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(lines(&head, &rows), ["  n  what   where", "  1  größe  /a", "100  b"]);
    }

    #[test]
    fn a_cell_may_be_of_any_length() {
        let long = "x".repeat(70_000);
        let rows = [vec![long.clone(), "1".to_owned()], vec!["y".to_owned(), "2".to_owned()]];
        let lines = lines(&[("", Side::Left), ("", Side::Right)], &rows);
        assert_eq!(lines[0], format!("{long}  1"));
        assert_eq!(lines[1].len(), lines[0].len());
    }

    #[test]
    fn without_names_there_is_no_head() {
        let rows = [vec!["a".to_owned(), "1".to_owned()]];
        assert_eq!(lines(&[("", Side::Left), ("", Side::Right)], &rows), ["a  1"]);
    }
}
