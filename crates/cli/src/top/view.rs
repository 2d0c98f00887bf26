//! State of the live view, and the effect of each key on it. It needs no terminal and no node.

use std::time::Duration;

use base::limits::OVERVIEW_ROWS_MAX;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use operations::overview::{Order, Overview, Table, TableQuery};

use super::words;
use super::{EVERY_MAX, EVERY_MIN};
use crate::command_error::CommandError;

/// Limit on the bytes of a filter: names are shorter.
const FILTER_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct View {
    pub(super) table: Table,
    pub(super) order: Order,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The known overview does not match the view, so a request is due even while paused.
    pub(super) is_stale: bool,
    pub(super) every: Duration,
    /// Rows above the first visible one.
    pub(super) above: usize,
    /// Rows that fit, according to the last drawing.
    pub(super) fits: usize,
    pub(super) overview: Option<Overview>,
    /// Reason why there is no newer one.
    pub(super) error: Option<String>,
}

/// Effect of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyEffect {
    Nothing,
    /// Draw: the view of the known overview changes.
    Draw,
    /// Ask: another overview is needed.
    Ask,
    Quit,
}

impl View {
    pub(super) fn new(look: TableQuery, every: Duration) -> Self {
        Self {
            table: look.table,
            order: look.order,
            filter: look.filter,
            is_typing: false,
            is_paused: false,
            shows_help: false,
            is_stale: false,
            every,
            above: 0,
            fits: 20,
            overview: None,
            error: None,
        }
    }

    /// The request for this view.
    pub(super) fn look(&self) -> TableQuery {
        let rows = (self.above + self.fits).clamp(1, OVERVIEW_ROWS_MAX);
        let filter = self.filter.clone();
        TableQuery { table: self.table, order: self.order, filter, rows_max: rows as u32 }
    }

    /// Errors that the user can fix end the view; an unreachable node may come back.
    pub(super) fn take(
        &mut self,
        answer: Result<Overview, CommandError>,
    ) -> Result<(), CommandError> {
        match answer {
            Ok(overview) => {
                self.overview = Some(overview);
                self.error = None;
            }
            Err(CommandError::Server(error)) => self.error = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> KeyEffect {
        if key.kind == KeyEventKind::Release {
            return KeyEffect::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyEffect::Quit,
                KeyCode::Char('l') => KeyEffect::Draw,
                _ => KeyEffect::Nothing,
            };
        }
        if self.is_typing {
            return self.typed(key.code);
        }
        if self.shows_help {
            self.shows_help = false;
            return if key.code == KeyCode::Char('q') { KeyEffect::Quit } else { KeyEffect::Draw };
        }
        self.pressed(key.code)
    }

    fn pressed(&mut self, code: KeyCode) -> KeyEffect {
        match code {
            KeyCode::Char('q') => KeyEffect::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                self.shows_help = true;
                KeyEffect::Draw
            }
            KeyCode::Tab => self.turn_to(match self.table {
                Table::Topics => Table::Queues,
                Table::Queues => Table::Groups,
                Table::Groups => Table::Topics,
            }),
            KeyCode::BackTab => self.turn_to(match self.table {
                Table::Topics => Table::Groups,
                Table::Queues => Table::Topics,
                Table::Groups => Table::Queues,
            }),
            KeyCode::Char('1' | 't') => self.turn_to(Table::Topics),
            KeyCode::Char('2' | 'u') => self.turn_to(Table::Queues),
            KeyCode::Char('3' | 'g') => self.turn_to(Table::Groups),
            KeyCode::Char('s') => {
                let mut orders = words::orders(self.table).cycle();
                orders.find(|order| *order == self.order);
                let next = orders.next().unwrap_or(Order::Rate);
                self.sort(next)
            }
            KeyCode::Char('r') => self.sort(Order::Rate),
            KeyCode::Char('b' | 'l') => self.sort(Order::Backlog),
            KeyCode::Char('a') => self.sort(Order::Age),
            KeyCode::Char('n') => self.sort(Order::Name),
            KeyCode::Char('/' | 'f') => {
                self.is_typing = true;
                KeyEffect::Draw
            }
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.above = 0;
                KeyEffect::Ask
            }
            KeyCode::Char(' ' | 'p') => {
                self.is_paused = !self.is_paused;
                if self.is_paused { KeyEffect::Draw } else { KeyEffect::Ask }
            }
            KeyCode::Char('+') => self.again_every(self.every / 2),
            KeyCode::Char('-') => self.again_every(self.every * 2),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(self.fits as isize),
            KeyCode::PageUp => self.scroll(-(self.fits as isize)),
            KeyCode::Home => self.scroll(isize::MIN),
            _ => KeyEffect::Nothing,
        }
    }

    /// The filter applies at each letter.
    fn typed(&mut self, code: KeyCode) -> KeyEffect {
        match code {
            KeyCode::Enter => {
                self.is_typing = false;
                return KeyEffect::Draw;
            }
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character)
                if self.filter.len() + character.len_utf8() <= FILTER_BYTES_MAX =>
            {
                self.filter.push(character);
            }
            _ => return KeyEffect::Nothing,
        }
        self.above = 0;
        KeyEffect::Ask
    }

    fn turn_to(&mut self, table: Table) -> KeyEffect {
        if table == self.table {
            return KeyEffect::Nothing;
        }
        self.table = table;
        self.above = 0;
        if words::orders(table).all(|order| order != self.order) {
            self.order = Order::Backlog;
        }
        KeyEffect::Ask
    }

    /// Ignores orders that the table does not have.
    fn sort(&mut self, order: Order) -> KeyEffect {
        if words::orders(self.table).all(|known| known != order) || order == self.order {
            return KeyEffect::Nothing;
        }
        self.order = order;
        self.above = 0;
        KeyEffect::Ask
    }

    fn again_every(&mut self, every: Duration) -> KeyEffect {
        self.every = every.clamp(EVERY_MIN, EVERY_MAX);
        KeyEffect::Draw
    }

    fn scroll(&mut self, by: isize) -> KeyEffect {
        let matching = self.overview.as_ref().map_or(0, |overview| overview.matching as usize);
        let last = matching.min(OVERVIEW_ROWS_MAX).saturating_sub(self.fits);
        let above = self.above.saturating_add_signed(by).min(last);
        if above == self.above {
            return KeyEffect::Nothing;
        }
        self.above = above;
        KeyEffect::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::overview;
    use super::*;

    fn view() -> View {
        let look = TableQuery {
            table: Table::Topics,
            order: Order::Rate,
            filter: String::new(),
            rows_max: 20,
        };
        View::new(look, Duration::from_secs(2))
    }

    fn press(view: &mut View, code: KeyCode) -> KeyEffect {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn letter(view: &mut View, character: char) -> KeyEffect {
        press(view, KeyCode::Char(character))
    }

    #[test]
    fn keys_change_the_table_and_its_order() {
        let mut view = view();
        assert_eq!(letter(&mut view, 'a'), KeyEffect::Nothing, "topics have no age");
        assert_eq!(press(&mut view, KeyCode::Tab), KeyEffect::Ask);
        assert_eq!((view.table, view.order), (Table::Queues, Order::Rate));
        assert_eq!(letter(&mut view, 'a'), KeyEffect::Ask);
        assert_eq!(letter(&mut view, 't'), KeyEffect::Ask);
        assert_eq!((view.table, view.order), (Table::Topics, Order::Backlog));
        for expected in [Order::Name, Order::Rate, Order::Backlog] {
            assert_eq!(letter(&mut view, 's'), KeyEffect::Ask);
            assert_eq!(view.order, expected);
        }
        assert_eq!(press(&mut view, KeyCode::BackTab), KeyEffect::Ask);
        assert_eq!(view.look().table, Table::Groups);
    }

    #[test]
    fn filter_can_be_typed_and_cleared_and_its_letters_are_no_commands() {
        let mut view = view();
        letter(&mut view, '/');
        for character in "qx".chars() {
            assert_eq!(letter(&mut view, character), KeyEffect::Ask);
        }
        press(&mut view, KeyCode::Backspace);
        assert_eq!(press(&mut view, KeyCode::Enter), KeyEffect::Draw);
        assert_eq!((view.look().filter.as_str(), view.is_typing), ("q", false));
        assert_eq!(press(&mut view, KeyCode::Esc), KeyEffect::Ask);
        assert_eq!(view.filter, "");
        assert_eq!(press(&mut view, KeyCode::Esc), KeyEffect::Nothing);
        letter(&mut view, '/');
        for _ in 0..1_000 {
            letter(&mut view, 'ü');
        }
        assert_eq!(view.filter.len(), FILTER_BYTES_MAX);
    }

    #[test]
    fn view_pauses_and_changes_its_interval_within_limits() {
        let mut view = view();
        assert_eq!((letter(&mut view, ' '), view.is_paused), (KeyEffect::Draw, true));
        assert_eq!((letter(&mut view, 'p'), view.is_paused), (KeyEffect::Ask, false));
        for _ in 0..10 {
            letter(&mut view, '+');
        }
        assert_eq!(view.every, EVERY_MIN);
        for _ in 0..20 {
            letter(&mut view, '-');
        }
        assert_eq!(view.every, EVERY_MAX);
    }

    #[test]
    fn unreachable_node_is_shown_and_missing_rights_end_the_view() {
        let mut view = view();
        let away = CommandError::server("gone");
        assert!(view.take(Err(away)).is_ok());
        assert_eq!(view.error.as_deref(), Some("gone"));
        assert!(view.take(Ok(overview())).is_ok());
        assert_eq!(view.error, None);
        assert!(view.take(Err(CommandError::user("no rights"))).is_err());
    }

    #[test]
    fn any_key_closes_help_and_q_or_ctrl_c_ends_the_view() {
        let mut view = view();
        assert_eq!((letter(&mut view, '?'), view.shows_help), (KeyEffect::Draw, true));
        assert_eq!((letter(&mut view, 'n'), view.shows_help), (KeyEffect::Draw, false));
        assert_eq!(view.order, Order::Rate);
        assert_eq!(letter(&mut view, 'q'), KeyEffect::Quit);
        letter(&mut view, '/');
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(interrupt), KeyEffect::Quit);
    }

    #[test]
    fn scrolling_ends_at_the_last_row() {
        let mut view = view();
        view.fits = 10;
        assert_eq!(press(&mut view, KeyCode::Down), KeyEffect::Nothing, "nothing is known yet");
        view.overview = Some(Overview { matching: 25, ..overview() });
        assert_eq!(press(&mut view, KeyCode::PageDown), KeyEffect::Ask);
        assert_eq!(view.look().rows_max, 20);
        press(&mut view, KeyCode::PageDown);
        assert_eq!(view.above, 15);
        assert_eq!(press(&mut view, KeyCode::Down), KeyEffect::Nothing);
        assert_eq!(press(&mut view, KeyCode::Home), KeyEffect::Ask);
        assert_eq!(press(&mut view, KeyCode::Up), KeyEffect::Nothing);
        view.overview = Some(Overview { matching: 1 << 40, ..overview() });
        for _ in 0..100 {
            press(&mut view, KeyCode::PageDown);
        }
        assert_eq!(view.look().rows_max as usize, OVERVIEW_ROWS_MAX);
    }
}
