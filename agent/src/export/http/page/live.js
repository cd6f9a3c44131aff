"use strict";
// The page is whole as it stands. This loads it anew when something happens, and says when it cannot.
(() => {
  const SOON = 200, CALM = 1000, OFTEN = 5000, SELDOM = 15000, WITHIN = 10000;
  const live = document.getElementById("live");
  let main = document.querySelector("main");
  let loaded = Date.now(), due = 0, timer = 0, loading = false, follows = false;

  const say = (is, text) => {
    if (live.dataset.is !== is || is === "away") live.textContent = text;
    live.dataset.is = is;
  };
  const shown = () => (follows ? ["live", "Live: shows what happens when it happens."]
                               : ["polls", "Looks again every few seconds."]);

  const later = (wait) => {
    const at = Date.now() + wait;
    if (timer && due <= at) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(load, wait);
  };

  const isBusy = () => {
    const chosen = document.getSelection();
    return document.hidden || (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode));
  };

  const replace = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const fresh = next.querySelector("main");
    if (!fresh) throw new Error("no page");
    for (const one of main.querySelectorAll("details[id]"))
      fresh.querySelector("#" + one.id)?.toggleAttribute("open", one.open);
    const focus = document.activeElement?.getAttribute("href");
    const place = main.contains(document.activeElement) ? focus : null;
    main.replaceWith(document.adoptNode(fresh));
    main = fresh;
    document.title = next.title;
    if (place !== null)
      [...main.querySelectorAll("a")].find((link) => link.getAttribute("href") === place)?.focus();
  };

  async function load() {
    timer = 0;
    if (loading) return later(SOON);
    if (isBusy()) return later(CALM);
    loading = true;
    try {
      const signal = AbortSignal.timeout(WITHIN);
      const answer = await fetch(location.href, { cache: "no-store", signal });
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      replace(await answer.text());
      loaded = Date.now();
      say(...shown());
    } catch {
      const age = Math.round((Date.now() - loaded) / 1000);
      say("away", `The agent does not answer. This is how it was ${age} seconds ago.`);
    }
    loading = false;
    later(live.dataset.is === "live" ? SELDOM : OFTEN);
  }

  const follow = () => {
    const source = new EventSource("/api/v1/events?follow=true");
    source.onopen = () => { follows = true; later(SOON); };
    source.onmessage = () => later(Date.now() - loaded < CALM ? CALM : SOON);
    source.onerror = () => {
      follows = false;
      later(SOON);
      // Refused for now: browsers come back by themselves only to a stream that had begun.
      if (source.readyState === EventSource.CLOSED) setTimeout(follow, SELDOM);
    };
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) later(0); });
  follow();
  later(OFTEN);
})();
