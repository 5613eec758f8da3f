# Tables of what `real` beside this has kept, from all its lines at once (--slurp): as Markdown, or as one page ($form).

# A cause is named with confidence where it is ten times likelier than everything else together.
def sure: . >= 10 / 11;
def median: sort | if length == 0 then null else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 end;
def percent($of): if $of == 0 then "–" else "\(100 * . / $of * 10 | round / 10) % (\(.) of \($of))" end;
def digits: if . == null then "–" elif . >= 100 then round else . * 100 | round / 100 end | tostring;
def is_found: .outcome == "found" or .outcome == "metastable";
def held: .planted as $planted | .breaking_rate | .lower != null and .lower <= $planted and $planted <= .upper;
def error: ((.breaking_rate.estimate - .planted) / .planted) | fabs * 100;

# The rate at which it breaks in requests a second: one new connection each where none is kept.
def planted: .limit // (if .class == "churn-cost" then .limits[0].rate else null end);
def is_exact: planted != null and .limit_exact != false;
def bracket: .breaking_rate | if .lower == null then "–" else "\(.lower | digits)–\(.upper | digits)" end;
def named: .cause.name // "none";
def right: named == .class;

def row($title; $all):
  ($all | map(select(is_exact))) as $exact
  | ($exact | map(select(is_found and .breaking_rate.lower != null))) as $bracketed
  | [ $title, ($all | length), ($all | map(select(is_found)) | length), ($all | map(select(.outcome == "generator-limited")) | length),
      ($bracketed | map(select(held)) | length | percent($bracketed | length)),
      ($bracketed | map(select(.breaking_rate.estimate != null) | error) | median | digits),
      ($all | map(.seconds) | median | digits),
      ($all | map(select(right)) | length | percent($all | length)),
      ($all | map(select(right or .outcome == "generator-limited" | not) | select(.cause != null and (.cause.score | sure))) | length | percent($all | length)),
      ($all | map(select(.verdicts.invalid > 0)) | length) ];

def by_class:
  { title: "By class of cause",
    about: "Bracket: of the runs that show one, where a formula gives the limit exactly. Wrong with confidence: ten times likelier than all that was planted.",
    head: ["planted", "runs", "cliff found", "generator-limited", "bracket holds the limit", "median error %", "median s", "cause right", "wrong with confidence", "runs with invalid trials"],
    rows: ([group_by(.class)[] | row(.[0].class; .)] + [row("all"; .)]) };

def nominal:
  { title: "Limits that are nominal",
    about: "A cap refuses one in a thousand far below what its places carry, the lower the more its requests come by chance; what computes does what the machine lets it.",
    head: ["planted", "seed", "nominal", "one in a thousand, by chance", "bracket", "middle / nominal"],
    rows: map(select(.limit_exact == false)
      | [.class, .seed, (.limit | digits), (.chance | digits), bracket, (if .breaking_rate.estimate then .breaking_rate.estimate / .limit | digits else "–" end)]) };

def matrix:
  (map(.class) | unique) as $planted | (map(named) | unique) as $named
  | . as $all
  | { title: "Planted (rows) and named first (columns)", about: "none: it did not ask, because nothing broke or too little time was left.",
      head: (["planted"] + $named),
      rows: [$planted[] as $class | [$class] + [$named[] as $name
        | $all | map(select(.class == $class and named == $name)) | length | if . == 0 then "" else . end]] };

def slowed:
  { title: "A generator slowed on purpose", about: "Its outcome must be generator-limited in each.",
    head: ["CPU", "runs", "generator-limited", "otherwise", "median s"],
    rows: [group_by(.permille)[] | ["\(.[0].permille)m", length, (map(select(.outcome == "generator-limited")) | length | tostring),
      (map(select(.outcome != "generator-limited") | "\(.seed): \(.outcome // "exit \(.code)")") | join(", ")), (map(.seconds) | median | digits)]] };

def runs:
  { title: "All runs", about: "The seed and the class give the same plant again: emulate server --random --cause CLASS --seed SEED.",
    head: ["class", "seed", "plant", "planted /s", "outcome", "bracket /s", "error %", "named", "score", "s", "invalid trials", "load"],
    rows: map([.class, .seed, (.plants | join(" ")), (planted | digits), (.outcome // "exit \(.code)") + (if .stop_reason then ", stopped by \(.stop_reason)" else "" end), bracket,
      (if is_exact and .breaking_rate.estimate then error | digits else "–" end), ([named] + (.other_causes | map(.name)) | join(" + ")),
      (.cause.score | digits), .seconds, (.verdicts.invalid // 0), .load]) };

def cell: tostring | gsub("\\|"; "\\|");
def markdown:
  "### \(.title)\n\n\(.about)\n\n| \(.head | map(cell) | join(" | ")) |\n|\(.head | map("---|") | add)\n"
  + (.rows | map("| \(map(cell) | join(" | ")) |\n") | add // "") ;

def line($tag): "<tr>" + (map("<\($tag)>\(tostring | @html)</\($tag)>") | add) + "</tr>\n";
def section: "<h2>\(.title | @html)</h2>\n<p>\(.about | @html)</p>\n<div><table>\n<thead>\(.head | line("th"))</thead>\n<tbody>\(.rows | map(line("td")) | add // "")</tbody>\n</table></div>\n";
def page: "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>find on real plants</title>\n<style>"
  + "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24}div{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
  + "th,td{border:1px solid #d0d7de;padding:.25rem .5rem;text-align:left}thead{background:#f0f3f6}</style>\n<h1>find on real plants</h1>\n" + (map(section) | add) + "</html>\n";

map(. + { planted: planted }) | sort_by(.class, .seed)
| (map(select(.permille == null)) | if length > 0 then [by_class, matrix, nominal, runs] else [] end) as $scored
| (map(select(.permille != null)) | if length > 0 then [slowed] else [] end) as $slow
| $scored + $slow | if $form == "page" then page else map(markdown) | join("\n") end
