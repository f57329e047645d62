// Keeps the page current without a reload: new content arrives as server-sent events and is merged into the document, so
// that focus, selection and scroll position stay. Without this script, the page is static.
"use strict";

const main = document.querySelector("main");
const pulse = document.querySelector(".pulse");
let source;
let received = performance.now();

function say(text, name) {
  pulse.className = "pulse " + name;
  if (pulse.textContent !== text) pulse.textContent = text;
}

// Makes the children of `old` equal to those of `fresh`, in place.
function merge(old, fresh) {
  let at = old.firstChild;
  for (let next = fresh.firstChild; next; ) {
    const node = next;
    next = next.nextSibling;
    if (!at) {
      old.append(node);
      continue;
    }
    const after = at.nextSibling;
    if (at.nodeType !== node.nodeType || at.nodeName !== node.nodeName || at.id !== node.id) at.replaceWith(node);
    else if (at.nodeType !== Node.ELEMENT_NODE) {
      if (at.data !== node.data) at.data = node.data;
    } else {
      attributes(at, node);
      merge(at, node);
    }
    at = after;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function attributes(old, fresh) {
  // What the user has opened stays open.
  const own = old.nodeName === "DETAILS" ? "open" : "";
  for (const { name } of [...old.attributes]) if (name !== own && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}

// Durations as the server writes them.
function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
  return Math.floor(s / 86400) + " d " + (Math.floor(s / 3600) % 24) + " h";
}

// Counts on between two updates.
function tick() {
  const passed = performance.now() - received;
  for (const time of main.querySelectorAll("[data-in]")) {
    const left = time.dataset.in - passed;
    time.textContent = left > 0 ? "in " + span(left + 999) : "now";
  }
  for (const time of main.querySelectorAll("[data-ago]")) time.textContent = span(+time.dataset.ago + passed) + " ago";
  for (const time of main.querySelectorAll("[data-for]")) time.textContent = "for " + span(+time.dataset.for + passed);
}

function connect() {
  if (source || document.hidden || !main.dataset.live) return;
  source = new EventSource(main.dataset.live);
  source.onopen = () => say("Live", "live");
  source.onmessage = (event) => {
    // An inert document: nothing in it runs or loads.
    const fresh = new DOMParser().parseFromString(event.data, "text/html").body;
    received = performance.now();
    // What the user is typing stays.
    for (const input of fresh.querySelectorAll("input, select")) {
      const typed = document.getElementById(input.id);
      if (typed) input.replaceWith(typed.cloneNode(true));
    }
    merge(main, fresh);
  };
  source.onerror = () => {
    if (source && source.readyState === EventSource.CLOSED) {
      // Refused: too many pages are open, or a login is needed. Ask again in a while.
      disconnect();
      say("Not live: refused, trying again", "lost");
      setTimeout(connect, 15000);
    } else say("Connection lost, trying again", "lost");
  };
}

function disconnect() {
  if (source) source.close();
  source = undefined;
}

// A browser opens few connections to one server: hidden pages must not hold them.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return connect();
  disconnect();
  say("Paused", "");
});

// A page that is left is kept with its state, but not with its connection.
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("q");
  if (event.key !== "/" || !search || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  search.focus();
});

setInterval(tick, 1000);
connect();
