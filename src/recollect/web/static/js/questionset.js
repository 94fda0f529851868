// The reader's own judged questions, kept in this browser.

const KEY = "recollect.questions";
const MOST = 500;

/** The questions so far: [{text, relevant: [{id, name}]}]. */
export function load() {
  try {
    return checked(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return [];
  }
}

/** Keeps the questions; false where the browser has no room or does not allow it. */
export function save(questions) {
  try {
    localStorage.setItem(KEY, JSON.stringify(questions.slice(0, MOST)));
    return true;
  } catch {
    return false;
  }
}

/** The questions with this one in it; one of the same words is replaced. */
export function withQuestion(questions, question) {
  return [...questions.filter((one) => one.text !== question.text), question];
}

/** As the server and `recollect eval` read them. */
export function forServer(questions) {
  return questions.map((one) => ({ text: one.text, relevant: one.relevant.map((record) => record.id) }));
}

/** The set as a file to be kept. */
export function asFile(questions) {
  return new Blob([`${JSON.stringify({ questions }, null, 2)}\n`], { type: "application/json" });
}

/** The questions of a file that was kept; of what does not fit, nothing. */
export function fromFile(text) {
  const said = JSON.parse(text);
  return checked(Array.isArray(said) ? said : said?.questions);
}

function checked(said) {
  if (!Array.isArray(said)) return [];
  return said
    .filter((one) => typeof one?.text === "string" && one.text.trim())
    .map((one) => ({ text: one.text, relevant: judged(one.relevant) }))
    .filter((one) => one.relevant.length)
    .slice(0, MOST);
}

function judged(said) {
  const rows = Array.isArray(said) ? said : Object.keys(said ?? {});
  return rows
    .map((one) =>
      typeof one === "string"
        ? { id: one, name: one }
        : { id: String(one?.id ?? ""), name: String(one?.name ?? one?.id ?? "") },
    )
    .filter((one) => one.id);
}
