import { useState } from "react";
import { createRoot } from "react-dom/client";
import { useJobEvents } from "oncekey-events/react";

const PARTS = { pay: "Payment", pack: "Packing", ship: "Delivery" };
const STATUS = { connecting: "Connecting", live: "Live", waiting: "Coming back", offline: "Offline" };

/** All jobs of an order, on one connection. */
function Order({ order }) {
  const { events, status } = useJobEvents("/events/", { jobs: [`${order}/*`] });
  return (
    <>
      <header>
        <h1>{order}</h1>
        <p className="status" data-status={status}>
          {STATUS[status] ?? status}
        </p>
      </header>
      {Object.entries(PARTS).map(([part, title]) => (
        <Part key={part} title={title} events={events.filter((e) => e.job_id === `${order}/${part}`)} />
      ))}
      <p className="quiet">{events.length} events, one connection</p>
    </>
  );
}

function Part({ title, events }) {
  const percent = events.at(-1)?.seq ?? 0;
  return (
    <section data-percent={percent}>
      <div className="line">
        <h2>{title}</h2>
        <span>{percent} %</span>
      </div>
      <progress max="100" value={percent} aria-label={title} />
      <ol>
        {events.map((event) => (
          <li key={event.id}>{event.data.text}</li>
        ))}
      </ol>
    </section>
  );
}

function Shop() {
  const [order, show] = useState(sessionStorage.getItem("order"));
  async function place() {
    const placed = await (await fetch("/orders", { method: "POST" })).json();
    sessionStorage.setItem("order", placed.order);
    show(placed.order);
  }
  return (
    <main>
      {order && <Order order={order} />}
      <button onClick={place}>{order ? "Order again" : "Order a bottle"}</button>
    </main>
  );
}

createRoot(document.getElementById("shop")).render(<Shop />);
