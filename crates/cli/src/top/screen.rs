//! Draws the live view. Text from a node is escaped here, independently of the terminal library.

use std::time::Duration;

use operations::overview::Overview;
use operations::time::human_duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use super::view::View;
use super::words::{self, Column};
use crate::printable;

const HELP: [&str; 11] = [
    "Tab, 1 2 3    topics, queues, groups",
    "s             sort by the next column",
    "r b a n       sort by rate, backlog (or lag), age, name",
    "/             filter by name; Enter keeps it, Esc ends it",
    "space, p      pause and go on",
    "+ -           look more often, less often",
    "up down, j k  scroll; also PgUp, PgDn, Home",
    "?, h          this help",
    "q, Ctrl-C     quit",
    "",
    "any key closes this",
];
const HELP_WIDTH: u16 = 60;
/// Width of number cells.
const NUMBER_WIDTH: u16 = 10;

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    let (lines, alarms) = match &view.overview {
        Some(overview) => (words::lines(overview), alarms(overview)),
        None => (vec!["asks the node ..".to_owned()], Vec::new()),
    };
    let [above, between, table, below] = Layout::vertical([
        Constraint::Length((lines.len() + alarms.len()) as u16),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = lines.into_iter().enumerate().map(|(at, line)| {
        let style = if at == 0 { bold } else { Style::new() };
        Line::styled(printable::text(&line), style)
    });
    let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let alarms = alarms.into_iter().map(|line| Line::styled(line, alarm));
    frame.render_widget(Paragraph::new(lines.chain(alarms).collect::<Vec<_>>()), above);
    // The row of headings does not count.
    view.fits = usize::from(table.height.saturating_sub(1)).max(1);
    let shown = rows(frame, view, table);
    frame.render_widget(Paragraph::new(vec![Line::raw(""), title(view, shown)]), between);
    frame.render_widget(Paragraph::new(footer(view)), below);
    if view.shows_help {
        help(frame, area);
    }
}

fn alarms(overview: &Overview) -> Vec<String> {
    overview.alarms.iter().map(|alarm| format!("! {}", printable::text(alarm))).collect()
}

/// The overview, if it is of this table: the last reply may be to a request for another one.
fn known(view: &View) -> Option<&Overview> {
    view.overview.as_ref().filter(|it| words::table_of(&it.rows) == view.table)
}

fn title(view: &View, shown: usize) -> Line<'static> {
    let mut words = match known(view) {
        Some(overview) => words::shown(overview, shown),
        None => words::name(view.table).to_owned(),
    };
    words += &format!(" by {}", words::order_name(view.order));
    if view.above > 0 {
        words += &format!(", from the {}. on", view.above + 1);
    }
    if !view.filter.is_empty() || view.is_typing {
        words += &format!(", with \"{}\"", printable::text(&view.filter));
    }
    let mut spans = vec![Span::styled(words, Style::new().add_modifier(Modifier::BOLD))];
    if view.is_paused {
        let style = Style::new().add_modifier(Modifier::REVERSED);
        spans.push(Span::raw("  "));
        spans.push(Span::styled(" paused ", style));
    }
    Line::from(spans)
}

fn footer(view: &View) -> Line<'static> {
    if view.is_typing {
        let filter = printable::text(&view.filter);
        return Line::raw(format!("filter: {filter}_   Enter keeps it, Esc ends it"));
    }
    if let Some(error) = &view.error {
        return Line::styled(printable::text(error), Style::new().fg(Color::Red));
    }
    let every = match view.every.subsec_millis() {
        0 => human_duration(view.every),
        _ => format!("{:.1}s", view.every.max(Duration::from_millis(1)).as_secs_f64()),
    };
    Line::styled(
        format!("every {every}   Tab table  s sort  / filter  space pause  ? help  q quit"),
        Style::new().add_modifier(Modifier::DIM),
    )
}

/// Draws the rows and returns their number.
fn rows(frame: &mut Frame<'_>, view: &View, area: Rect) -> usize {
    let columns = words::columns(view.table);
    let fits = |column: &Column| column.from_width <= area.width;
    let number = |column: &Column| column.heading.strip_prefix('>');
    let cells = known(view).map(|overview| words::cells(&overview.rows)).unwrap_or_default();
    let cell = |column: &Column, text: String| {
        let text = printable::text(&text);
        match number(column) {
            Some(_) => Cell::from(Line::raw(text).right_aligned()),
            None => Cell::from(text),
        }
    };
    let headings = columns.iter().filter(|column| fits(column)).map(|column| {
        let style = match column.order == Some(view.order) {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new().add_modifier(Modifier::BOLD),
        };
        match number(column) {
            Some(heading) => Cell::from(Line::styled(heading, style).right_aligned()),
            None => Cell::from(Line::styled(column.heading, style)),
        }
    });
    let widths = columns.iter().filter(|column| fits(column)).map(|column| match number(column) {
        Some(heading) => Constraint::Length(NUMBER_WIDTH.max(heading.len() as u16)),
        None if column.heading == "STATE" => Constraint::Length(6),
        None => Constraint::Fill(1),
    });
    let rows = cells.into_iter().skip(view.above).take(view.fits).map(|row| {
        let row = row.into_iter().zip(columns).filter(|(_, column)| fits(column));
        Row::new(row.map(|(text, column)| cell(column, text)))
    });
    let rows: Vec<Row<'_>> = rows.collect();
    let shown = rows.len();
    let table = Table::new(rows, widths.collect::<Vec<_>>())
        .header(Row::new(headings.collect::<Vec<_>>()))
        .column_spacing(1);
    frame.render_widget(table, area);
    shown
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (HELP_WIDTH.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

#[cfg(test)]
pub(super) mod tests {
    use operations::overview::{
        Connections, GroupRow, Member, Node, Order, QueueRow, Rates, Rows, Table as Subject,
        TableQuery, TopicRow, Totals,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    pub(crate) fn overview() -> Overview {
        let topic = |name: &str, records_in: f64, backlog| TopicRow {
            topic: name.to_owned(),
            partitions: 4,
            records: 1_234_567,
            bytes: 3 << 20,
            records_in: Some(records_in),
            backlog,
            groups: 2,
        };
        Overview {
            at_ms: 0,
            over_ms: Some(2_000),
            node: Node {
                version: "0.1.0".into(),
                cluster: "c1".into(),
                node: 1,
                up_ms: 3_725_000,
                processors: Some(1.5),
                resident_bytes: Some(64 << 20),
                disk_free_bytes: Some(30 << 30),
                disk_bytes: Some(100 << 30),
                connections: vec![
                    Connections { protocol: "amqp".into(), connections: 0 },
                    Connections { protocol: "kafka".into(), connections: 3 },
                ],
                unconfirmed_bytes: 2_048,
                unconfirmed_bytes_max: 1 << 20,
            },
            nodes: vec![
                Member { node: 1, live: true, leads: vec![0, 1] },
                Member { node: 2, live: false, leads: vec![] },
            ],
            alarms: vec!["node 2 is not connected".into()],
            totals: Totals {
                topics: 2,
                partitions: 8,
                queues: 1,
                groups: 1,
                waiting: 1_200,
                ready: Some(1_000),
                leased: Some(200),
                delayed: Some(0),
            },
            rates: Some(Rates {
                records_in: 5_000.0,
                bytes_in: 5.0 * 1024.0 * 1024.0,
                bytes_out: 10.0 * 1024.0 * 1024.0,
                delivered: 400.0,
                redelivered: 1.5,
                settled: 390.0,
                dead_letters: 0.0,
                syncs: 300.0,
                sync_micros: Some(850.0),
            }),
            matching: 2,
            rows: Rows::Topics(vec![topic("orders", 4_999.6, 1_200), topic("audit", 0.4, 0)]),
            cut: false,
            counted_in_micros: 10,
        }
    }

    fn view(table: Subject, order: Order, overview: Option<Overview>) -> View {
        let look = TableQuery { table, order, filter: String::new(), rows_max: 10 };
        View { overview, ..View::new(look, Duration::from_secs(2)) }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, view)).expect("it is drawn");
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(usize::from(width)).map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        });
        lines.collect()
    }

    #[test]
    fn topics_are_drawn_below_the_nodes_lines() {
        let lines = drawn(&mut view(Subject::Topics, Order::Rate, Some(overview())), 100, 14);
        let expected = [
            "postroad 0.1.0   node 1 of cluster c1   up 1h 2m   1970-01-01T00:00:00.000Z",
            "2 nodes: 1 leads shards 0 1; 2 leads nothing, gone   2 topics, 8 partitions, 1 queue, 1 group",
            "cpu 150%   memory 64 MiB   disk 30 GiB free of 100 GiB   connections: kafka 3",
            "in 5,000/s, 5.0 MiB/s   out 10 MiB/s   syncs 300/s of 0.85 ms",
            "queues: delivered 400/s, again 1.5/s   settled 390/s   dead letters 0/s",
            "waiting 1,200 (ready 1,000, leased 200, delayed 0)   unconfirmed 2.0 KiB",
            "! node 2 is not connected",
            "",
            "2 topics by rate",
            "TOPIC                                    IN/S    BACKLOG    RECORDS       SIZE PARTITIONS     GROUPS",
            "orders                                  5,000      1,200  1,234,567    3.0 MiB          4          2",
            "audit                                     0.4          0  1,234,567    3.0 MiB          4          2",
            "",
            "every 2s   Tab table  s sort  / filter  space pause  ? help  q quit",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn queues_and_groups_have_columns_of_their_own_and_fewer_on_narrow_screens() {
        let queue = QueueRow {
            topic: "work".into(),
            group: "main".into(),
            paused: true,
            backlog: 1_200,
            ready: Some(1_000),
            leased: Some(200),
            delayed: None,
            consumers: Some(3),
            age_seconds: Some(75.0),
            records_in: Some(10.0),
            settled: None,
        };
        let rows = Rows::Queues(vec![queue]);
        let looked = Overview { rows, matching: 70, ..overview() };
        let lines = drawn(&mut view(Subject::Queues, Order::Age, Some(looked.clone())), 120, 12);
        assert_eq!(
            lines[8..11],
            [
                "1 of 70 queues by age",
                "QUEUE        GROUP        STATE        IN/S  SETTLED/S    BACKLOG      READY     LEASED    DELAYED  CONSUMERS     OLDEST",
                "work         main         paused         10          -      1,200      1,000        200          -          3     1m 15s",
            ]
        );
        let lines = drawn(&mut view(Subject::Queues, Order::Age, Some(looked)), 40, 12);
        assert_eq!(lines[9], "QUEUE    SETTLED/S    BACKLOG     OLDEST");
        let group = GroupRow {
            group: "readers".into(),
            topic: "orders".into(),
            partitions: 4,
            backlog: 900,
            age_seconds: Some(0.0),
            records_in: Some(10.0),
            committed: Some(100.0),
        };
        let rows = Rows::Groups(vec![group]);
        let looked = Overview { rows, matching: 1, cut: true, ..overview() };
        let lines = drawn(&mut view(Subject::Groups, Order::Backlog, Some(looked)), 100, 12);
        assert_eq!(
            lines[8..11],
            [
                "1 group, not all: there are more committed offsets than are counted by backlog",
                "GROUP                 TOPIC                       IN/S     READ/S        LAG     BEHIND CAUGHT UP IN",
                "readers               orders                        10        100        900         0s          10s",
            ]
        );
    }

    #[test]
    fn names_chosen_by_clients_are_escaped_on_the_screen() {
        let mut looked = overview();
        let Rows::Topics(rows) = &mut looked.rows else { unreachable!() };
        rows[0].topic = "\u{1b}[2J\u{9b}31mx\r\n".into();
        looked.node.cluster = "c\u{7}".into();
        looked.alarms = vec!["a\u{202e}b".into()];
        let mut view = view(Subject::Topics, Order::Rate, Some(looked));
        view.filter = "\u{1b}".into();
        view.error = Some("e\u{8}".into());
        let lines = drawn(&mut view, 120, 14);
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)), "{lines:?}");
        let text = lines.join("\n");
        for shown in [
            "\\u{1b}[2J\\u{9b}31mx\\u{d}\\u{a}",
            "cluster c\\u{7}",
            "! a\\u{202e}b",
            "with \"\\u{1b}\"",
            "e\\u{8}",
        ] {
            assert!(text.contains(shown), "no {shown} in\n{text}");
        }
    }

    #[test]
    fn screen_shows_pause_filter_scrolling_and_missing_replies() {
        let mut view = view(Subject::Topics, Order::Name, None);
        let lines = drawn(&mut view, 80, 8);
        assert_eq!(lines[0], "asks the node ..");
        assert_eq!(lines[2], "topics by name");
        view.overview = Some(overview());
        (view.is_paused, view.is_typing, view.above) = (true, true, 1);
        view.filter = "or".into();
        let lines = drawn(&mut view, 80, 14);
        assert_eq!(lines[8], "1 of 2 topics by name, from the 2. on, with \"or\"   paused");
        assert_eq!(lines[13], "filter: or_   Enter keeps it, Esc ends it");
        assert!(lines[10].starts_with("audit"), "{lines:?}");
        view.is_typing = false;
        view.error = Some("cannot reach a:1".into());
        assert_eq!(drawn(&mut view, 80, 14)[13], "cannot reach a:1");
    }

    #[test]
    fn help_covers_the_view_and_every_terminal_size_can_be_drawn() {
        let mut view = view(Subject::Queues, Order::Rate, Some(overview()));
        view.shows_help = true;
        let lines = drawn(&mut view, 80, 24);
        assert!(lines.iter().any(|line| line.contains("Tab, 1 2 3    topics, queues, groups")));
        for (width, height) in [(1, 1), (3, 50), (200, 1), (10, 3), (80, 7)] {
            drawn(&mut view, width, height);
        }
    }
}
