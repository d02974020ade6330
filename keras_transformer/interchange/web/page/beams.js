// A beam search that keeps its branches, as this package searches and its server shows it.

const END = 3;
const NEVER_WRITTEN = [0, 2]; // padding and start

/**
 * The steps, lists of branches {ids, parent, score, state}, and the answers, best first, of a search.
 * `logitsAfter(answers)` gives the logits of the token after each of several lists of ids.
 */
export async function beamSearch(logitsAfter, beams, alpha, fewest, most) {
  const penalty = (length) => ((5 + length) / 6) ** alpha; // of Wu et al. 2016
  let live = [{ ids: [], score: 0 }];
  let finished = [];
  const steps = [];
  for (let ended = false; !ended; ) {
    const length = steps.length + 1;
    const logits = await logitsAfter(live.map(({ ids }) => ids));
    const never = steps.length < fewest ? [...NEVER_WRITTEN, END] : NEVER_WRITTEN;
    const extensions = live.flatMap(({ ids, score }, parent) => {
      const row = logits[parent];
      const most = row.reduce((a, b) => Math.max(a, b));
      const normalizer = most + Math.log(row.reduce((sum, each) => sum + Math.exp(each - most), 0));
      const allowed = [...row.keys()].filter((id) => !never.includes(id));
      const best = allowed.sort((a, b) => row[b] - row[a]).slice(0, 2 * beams);
      return best.map((id) => ({ ids: [...ids, id], parent, score: score + row[id] - normalizer }));
    });
    const best = extensions.sort((a, b) => b.score - a.score).slice(0, 2 * beams);
    const ends = best.slice(0, beams).filter(({ ids }) => ids.at(-1) === END);
    for (const branch of ends) Object.assign(branch, { score: branch.score / penalty(length), state: "finished" });
    finished = [...finished, ...ends].sort((a, b) => b.score - a.score).slice(0, beams);
    live = best.filter(({ ids }) => ids.at(-1) !== END).slice(0, beams);
    steps.push([...live, ...ends.filter((branch) => finished.includes(branch))]);
    ended = length >= most || !live.length || finished[beams - 1]?.score >= live[0].score / penalty(most);
    ended ||= beams === 1 && ends.length > 0; // greedy decoding
  }
  steps.forEach((branches, step) => {
    const parents = new Set(steps[step + 1]?.map(({ parent }) => parent));
    branches.forEach((branch, n) => (branch.state ??= parents.has(n) ? "alive" : "dead"));
  });
  const cut = live.map(({ ids, score }) => ({ ids, score: score / penalty(ids.length) }));
  const answers = [...finished, ...cut].slice(0, beams);
  return { steps, answers: answers.map(({ ids, score }) => ({ ids, score, finished: ids.at(-1) === END })) };
}
