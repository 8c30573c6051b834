// Sets the theme before anything is drawn: the stored one, or that of the system.
"use strict";
{
  const stored = localStorage.getItem("theme");
  if (stored) document.documentElement.dataset.theme = stored;
}
