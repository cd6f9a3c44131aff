"use strict";
// The page is whole as it stands. This loads it anew when something happens, and says when it cannot.
(() => {
  const SOON = 200, CALM = 1000, OFTEN = 5000, SELDOM = 15000, WITHIN = 10000, HELD = 30000;
  const live = document.getElementById("live");
  let main = document.querySelector("main");
  let loaded = Date.now(), due = 0, timer = 0, loading = false, follows = false, source = null;

  const say = (is, text) => {
    if (live.textContent !== text) live.textContent = text;
    live.dataset.is = is;
  };
  const shown = () => (follows ? ["live", "Live: shows what happens when it happens."]
                               : ["polls", "Looks again every few seconds."]);

  const time = (at) => new Date(at).toLocaleTimeString();

  const later = (wait) => {
    const at = Date.now() + wait;
    if (timer && due <= at) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(load, wait);
  };

  // What somebody has selected is left to them for a while: not so long that the page tells of what was.
  const isBusy = () => {
    const chosen = document.getSelection();
    const holds = chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode);
    return document.hidden || (holds && Date.now() - loaded < HELD);
  };

  // Where the focus is: which of those that lead to the same place.
  const keyOf = (one) => one.getAttribute("href") ?? one.parentElement.id;
  const alike = (key) => [...main.querySelectorAll("a, summary")].filter((one) => keyOf(one) === key);

  const replace = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const fresh = next.querySelector("main");
    if (!fresh) throw new Error("no page");
    for (const one of main.querySelectorAll("details[id]"))
      fresh.querySelector("#" + one.id)?.toggleAttribute("open", one.open);
    const active = main.contains(document.activeElement) ? document.activeElement : null;
    const key = active && keyOf(active);
    const place = active && alike(key).indexOf(active);
    main.replaceWith(document.adoptNode(fresh));
    main = fresh;
    document.title = next.title;
    if (active) alike(key)[place]?.focus({ preventScroll: true });
  };

  async function load() {
    timer = 0;
    if (loading) return later(SOON);
    if (isBusy()) return later(CALM);
    loading = true;
    try {
      const signal = AbortSignal.timeout(WITHIN);
      const answer = await fetch(location.href, { cache: "no-store", signal });
      if (answer.status === 503) {
        say("away", `Too many read: the agent lives, and this is how it was at ${time(loaded)}.`);
        throw null;
      }
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      replace(await answer.text());
      loaded = Date.now();
      say(...shown());
    } catch (error) {
      if (error) say("away", `The agent does not answer. This is how it was at ${time(loaded)}.`);
    }
    loading = false;
    later(live.dataset.is === "live" ? SELDOM : OFTEN);
  }

  // Only what is seen follows: a browser has few connections to one place, and the agent few places for followers.
  const follow = () => {
    if (source || document.hidden) return;
    source = new EventSource("/api/v1/events?follow=true");
    source.onopen = () => { follows = true; later(SOON); };
    source.onmessage = () => later(Date.now() - loaded < CALM ? CALM : SOON);
    source.onerror = () => {
      follows = false;
      later(SOON);
      // Refused for now: browsers come back by themselves only to a stream that had begun.
      if (source?.readyState !== EventSource.CLOSED) return;
      source = null;
      setTimeout(follow, SELDOM);
    };
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      follow();
      return later(0);
    }
    source?.close();
    source = null;
    follows = false;
  });
  follow();
  later(OFTEN);
})();
