"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const root = document.documentElement;
  const charts = new Map();
  const WORDS = data.words;
  const SYMBOLS = {compaction: "triangle-down", microcompaction: "line-ew-open", silent_change: "cross", warning: "triangle-up", restart: "diamond", clear: "square",
    refusal: "x", big_result: "circle"};
  const number = (value) => value === null || value === undefined ? "unknown" : value.toLocaleString("en-US");
  // Text that the chart library takes for markup.
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const clock = (time) => time ? time.slice(0, 19).replace("T", " ") : "time unknown";

  // -- theme ---------------------------------------------------------------------------------------------------
  const button = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches;
  const showTheme = () => {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
    for (const chart of charts.values()) chart.draw();
  };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
  systemDark.addEventListener("change", showTheme);

  // -- tables of points ----------------------------------------------------------------------------------------
  const PAGE = 200;
  const cell = (row, text, kind) => {
    const made = document.createElement("td");
    made.textContent = text;
    if (kind) made.className = kind;
    row.append(made);
  };
  const entriesOf = (session) => {
    const rows = [];
    const add = (name, points) => points.x.forEach((x, i) => rows.push([x, name, points.time[i], points.tokens[i],
      points.exact[i] ? "counted" : "estimate", points.row[i]]));
    add("main", session.points);
    session.subagents.forEach((agent) => add(agent.agent_id, agent.points));
    return rows.sort((a, b) => a[0] - b[0]);
  };
  const fill = (details, session) => {
    const body = details.querySelector("tbody"), more = details.querySelector("button");
    const rows = entriesOf(session);
    let shown = 0;
    const next = () => {
      const part = document.createDocumentFragment();
      for (const [x, name, time, tokens, kind, line] of rows.slice(shown, shown + PAGE)) {
        const row = document.createElement("tr");
        cell(row, number(Math.floor(x)), "n"); cell(row, clock(time)); cell(row, name); cell(row, number(tokens), "n");
        cell(row, session.window && tokens !== null ? (100 * tokens / session.window).toFixed(1) + "%" : "–", "n");
        cell(row, kind); cell(row, number(line), "n");
        part.append(row);
      }
      body.append(part);
      shown = Math.min(rows.length, shown + PAGE);
      more.hidden = shown >= rows.length;
      more.textContent = `Show ${number(Math.min(PAGE, rows.length - shown))} more of ${number(rows.length - shown)}`;
    };
    more.addEventListener("click", next);
    next();
  };
  const setTables = (root, sessionAt) => root.querySelectorAll("details.points").forEach((details) => {
    const session = sessionAt(Number(details.dataset.session));
    details.addEventListener("toggle", () => { if (details.open) fill(details, session); }, {once: true});
  });

  // -- charts --------------------------------------------------------------------------------------------------
  class Chart {
    constructor(figure, session) {
      this.figure = figure; this.session = session; this.byTime = false; this.place = -1; this.drawn = false;
      this.live = figure.querySelector(".live");
      this.says = figure.querySelector("[aria-live]");
      this.hasTimes = session.points.time.length > 0 && session.points.time.every(Boolean);
      figure.querySelectorAll(".controls button").forEach((each) => {
        const act = each.dataset.act;
        if (act === "time" && !this.hasTimes) each.hidden = true;
        else each.addEventListener("click", () => this.act(act, each));
      });
      this.live.addEventListener("keydown", (event) => this.key(event));
    }
    at(x, time) { return this.byTime ? time : x; }
    line(name, points, look) {
      const s = this.session;
      const share = (t) => t === null ? "" : ` (${(100 * t / s.window).toFixed(1)}%)`;
      return {type: "scatter", mode: points.x.length < 60 ? "lines+markers" : "lines", name: safe(name),
        x: points.x.map((x, i) => this.at(x, points.time[i])), y: points.tokens, connectgaps: false,
        text: points.tokens.map((t, i) => `${safe(name)}: ${points.exact[i] ? "" : "about "}${number(t)} tokens` +
          `${s.window ? share(t) : ""}<br>response ${number(Math.floor(points.x[i]))}, ${safe(clock(points.time[i]))}`),
        hovertemplate: "%{text}<extra></extra>", ...look};
    }
    marks(kind) {
      const found = kind === "compaction"
        ? this.session.compactions.filter((c) => c.x !== null).map((c, i) => ({...c, tokens: c.before ?? c.cli_before ?? c.after,
            words: `${i + 1}: about ${number(c.before)} to ${c.after_exact ? "" : "about "}${number(c.after)} tokens`}))
        : this.session.marks.filter((m) => m.kind === kind);
      if (!found.length) return [];
      return [{type: "scatter", mode: "markers", name: WORDS[kind],
        x: found.map((m) => this.at(m.x, m.time)), y: found.map((m) => m.tokens ?? 0),
        marker: {symbol: SYMBOLS[kind], size: 11, color: colour(kind), line: {width: 1, color: colour("paper")}},
        text: found.map((m) => `${WORDS[kind]} ${safe(m.words)}${m.size ? `<br>about ${number(m.size)} tokens` : ""}` +
          `<br>response ${number(Math.floor(m.x))}, ${safe(clock(m.time))}`),
        hovertemplate: "%{text}<extra></extra>"}];
    }
    traces() {
      const s = this.session;
      const main = this.line("main agent", s.points, {line: {color: colour("main"), width: 2}, marker: {size: 4},
        fill: "tozeroy", fillcolor: colour("fill") + "1f"});
      const agents = s.subagents.filter((a) => a.points.x.length).map((a, i) => this.line("subagent " + a.agent_id,
        a.points, {line: {color: colour("agent"), width: 1.3}, marker: {size: 3}, legendgroup: "agents",
        showlegend: i === 0}));
      if (agents.length) agents[0].name = `subagents (${agents.length})`;
      return [main, ...agents, ...Object.keys(SYMBOLS).flatMap((kind) => this.marks(kind))];
    }
    layout() {
      const s = this.session, ink = colour("ink"), soft = colour("soft"), grid = colour("grid");
      const shapes = [], annotations = [];
      const narrow = this.live.clientWidth < 560;
      for (const [role, tokens, words] of s.limits) {
        shapes.push({type: "line", xref: "paper", x0: 0, x1: 1, y0: tokens, y1: tokens, layer: "below",
          line: {color: colour(role), width: 1.3, dash: {window: "solid", threshold: "dash", warning: "dot"}[role]}});
        // At the right end: the line begins at the left, low, and a label there would cover it.
        annotations.push({xref: "paper", x: 1, y: tokens, text: words, showarrow: false, xanchor: "right",
          yanchor: role === "warning" ? "top" : "bottom", font: {size: 11, color: colour(role)},
          bgcolor: colour("paper") + "b3", borderpad: 0});
      }
      for (const c of s.compactions) if (c.x !== null && (!this.byTime || c.time)) shapes.push({type: "line",
        yref: "paper", y0: 0, y1: 1, x0: this.at(c.x, c.time), x1: this.at(c.x, c.time),
        line: {color: colour("compaction"), width: 1, dash: "dot"}});
      return {shapes, annotations, paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"), hovermode: "x unified",
        hoverdistance: 30, dragmode: "zoom", uirevision: this.byTime ? "time" : "response",
        font: {family: "system-ui, DejaVu Sans, sans-serif", size: 12, color: ink},
        hoverlabel: {bgcolor: colour("panel"), bordercolor: soft, font: {color: ink}, align: "left", namelength: -1},
        margin: {l: narrow ? 46 : 60, r: narrow ? 8 : 20, t: 14, b: 46}, showlegend: true,
        legend: {orientation: "h", y: -0.18, x: 0, itemclick: "toggle"},
        xaxis: {title: {text: this.byTime ? "time (UTC)" : "response of the main agent", font: {color: soft}},
          gridcolor: grid, linecolor: grid, zeroline: false, type: this.byTime ? "date" : "linear",
          tickfont: {color: soft}, tickformat: this.byTime ? undefined : ",d", nticks: narrow ? 5 : 10,
          minallowed: this.byTime ? undefined : 0, ...(this.byTime ? {} : this.whole()),
          automargin: true},
        yaxis: {title: {text: narrow ? "" : "tokens", font: {color: soft}}, gridcolor: grid, zeroline: false,
          range: [0, s.top], tickformat: "~s", tickfont: {color: soft}, rangemode: "tozero"}};
    }
    whole() {
      // Responses are counted: with few of them the axis would have fractions otherwise.
      const last = Math.max(0, ...this.session.points.x);
      return last <= 10 ? {tick0: 0, dtick: 1} : {};
    }
    draw() {
      if (!window.Plotly || !this.wanted) return;
      this.live.hidden = false;
      this.figure.querySelector(".still").hidden = true;
      this.figure.querySelector(".controls").hidden = false;
      Plotly.react(this.live, this.traces(), this.layout(), {responsive: true, displaylogo: false, scrollZoom: false,
        doubleClick: "reset", modeBarButtons: [["toImage"]],
        toImageButtonOptions: {filename: "context", scale: 2}});
      if (!this.drawn) this.live.querySelectorAll("svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
      this.drawn = true;
    }
    values() {
      const axis = this.live._fullLayout.xaxis;
      return axis.range.map((end) => axis.r2l(end));
    }
    zoom(factor, shift) {
      const axis = this.live._fullLayout.xaxis, [a, b] = this.values();
      const middle = (a + b) / 2 + shift * (b - a), half = (b - a) / 2 * factor;
      Plotly.relayout(this.live, {"xaxis.range": [axis.l2r(middle - half), axis.l2r(middle + half)]});
    }
    act(what, pressed) {
      if (what === "in") this.zoom(0.5, 0);
      if (what === "out") this.zoom(2, 0);
      if (what === "left") this.zoom(1, -0.4);
      if (what === "right") this.zoom(1, 0.4);
      if (what === "all") Plotly.relayout(this.live, {"xaxis.autorange": true, "yaxis.range": [0, this.session.top]});
      if (what === "time") {
        this.byTime = !this.byTime;
        pressed.setAttribute("aria-pressed", String(this.byTime));
        this.draw();
      }
    }
    key(event) {
      const points = this.session.points, last = points.x.length - 1;
      const steps = {ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -Infinity, End: Infinity};
      const acts = {"+": "in", "=": "in", "-": "out", "0": "all", Escape: "all"};
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in acts) this.act(acts[event.key]);
      else if (event.key in steps && last >= 0) {
        this.place = Math.max(0, Math.min(last, this.place + steps[event.key]));
        const t = points.tokens[this.place];
        const share = t === null || !this.session.window ? "" : `, ${(100 * t / this.session.window).toFixed(1)}%`;
        this.says.textContent = `response ${number(Math.floor(points.x[this.place]))}: ` +
          `${points.exact[this.place] ? "" : "about "}${number(t)} tokens${share}, ${clock(points.time[this.place])}`;
        if (t !== null) Plotly.Fx.hover(this.live, [{curveNumber: 0, pointNumber: this.place}]);
      } else return;
      event.preventDefault();
    }
  }
  const unpacked = async (id) => {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const unpack = async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked("library");
    document.head.append(script);
  };
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    const chart = charts.get(entry.target);
    if (chart) { chart.wanted = true; chart.draw(); }
    seen.unobserve(entry.target);
  }), {rootMargin: "300px"});
  const setUp = (part, sessionAt) => {
    setTables(part, sessionAt);
    part.querySelectorAll("figure.chart").forEach((figure) => {
      charts.set(figure, new Chart(figure, sessionAt(Number(figure.dataset.session))));
      if (root.dataset.ready) seen.observe(figure);
    });
  };
  setUp(document, (place) => data.sessions[place]);
  showTheme();
  const start = () => {
    charts.forEach((_, figure) => seen.observe(figure));
    root.dataset.ready = "true";
  };

  // -- the index: sorting and searching --------------------------------------------------------------------------
  const index = byId("index");
  if (index) {
    const SHOWN = 200;
    const body = index.querySelector("tbody"), rest = byId("rest"), more = byId("more"), search = byId("search");
    const rows = [...body.rows, ...(rest ? rest.content.querySelectorAll("tr") : [])];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    let order = rows, shown = SHOWN;
    const show = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = order.filter((row) => words.every((word) => texts.get(row).includes(word)));
      body.replaceChildren(...found.slice(0, shown));
      byId("found").textContent = words.length ? `${number(found.length)} of ${number(rows.length)}` : "";
      more.hidden = found.length <= shown;
      more.textContent = `Show ${number(Math.min(SHOWN, found.length - shown))} more of ${number(found.length - shown)}`;
    };
    const value = (row, place, isNumber) => {
      const text = row.cells[place].textContent;
      if (!isNumber) return text.toLowerCase();
      const found = parseFloat(text.replace(/[,%]/g, ""));
      return Number.isNaN(found) ? -1 : found;
    };
    index.querySelectorAll("thead th").forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button"; button.className = "sort"; button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const isNumber = head.classList.contains("n"), before = head.getAttribute("aria-sort");
        const sign = before ? (before === "ascending" ? -1 : 1) : (isNumber ? -1 : 1);
        index.querySelectorAll("th[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const keyed = rows.map((row, at) => [value(row, place, isNumber), at, row]);
        keyed.sort((a, b) => sign * (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) || a[1] - b[1]);
        order = keyed.map((each) => each[2]); shown = SHOWN;
        show();
      });
    });
    search.closest("p").hidden = false;
    search.addEventListener("input", () => { shown = SHOWN; show(); });
    more.addEventListener("click", () => { shown += SHOWN; show(); });
    show();
  }

  // -- sessions that are unpacked when they are opened -------------------------------------------------------------
  const opened = byId("opened");
  const openSession = async () => {
    if (!opened) return;
    const place = location.hash.slice(2), isOne = location.hash[1] === "s" && byId("p" + place) !== null;
    charts.clear();
    opened.replaceChildren();
    index.hidden = isOne;
    if (!isOne) return;
    const found = JSON.parse(await unpacked("p" + place));
    opened.innerHTML = '<p><a href="#index">All sessions</a></p>' + found.html;
    setUp(opened, () => found.session);
    scrollTo(0, 0);
  };
  addEventListener("hashchange", openSession);
  openSession();
  // The pictures that are there already stay where the library cannot be unpacked.
  if (window.DecompressionStream) requestAnimationFrame(() => setTimeout(() => unpack().then(start), 0));
})();
