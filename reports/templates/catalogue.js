// Search of the catalogue: relations whose name, meaning or columns have all words that are sought; few are unfolded.
const FEW = 3;
const search = document.querySelector(".search");
const input = search.querySelector("input");
const relations = [...document.querySelectorAll(".relation")].map((place) => [place, place.textContent.toLowerCase()]);

function find() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = relations.filter(([place, text]) => {
    place.hidden = !words.every((word) => text.includes(word));
    return !place.hidden;
  });
  // those with the words in their names come first on the page by being the ones that are unfolded
  const named = found.filter(([place]) => words.every((word) => place.id.includes(word)));
  const shown = named.length ? named : found;
  for (const [place] of relations) place.open = words.length > 0 && shown.length <= FEW && shown.some(([one]) => one === place);
  for (const section of document.querySelectorAll("main section")) section.hidden = !section.querySelector(".relation:not([hidden])");
  search.querySelector("[role=status]").textContent = words.length ? `${found.length} of ${relations.length}` : `${relations.length}`;
}

function reveal() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place?.matches(".relation")) return;
  if (place.hidden) {
    input.value = "";
    find();
  }
  place.open = true;
  place.scrollIntoView();
}

search.hidden = false;
input.addEventListener("input", find);
addEventListener("hashchange", reveal);
find();
reveal();
